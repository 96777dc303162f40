"""Check before you run: compile the training step for the real topology, without the hardware.

`engine.check` compiles in a process of its own and says what came of it (`result.CompileCheck`): whether it fits, its
peak memory, its collectives by mesh axis.  Pure; the jobs and pages are in `proposals.services.compiling`.
docs/compile-check.md.
"""

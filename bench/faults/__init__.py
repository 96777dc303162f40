"""What the application does with its work while everything under it dies.

Uploads, questions, plan requests, documents and records are sent to a running `asap run` while its processes are
killed, its queue is emptied, its disk filled and its clock set forth and back; then it is left alone, and everything
that it accepted must be done once, or have failed with a reason (`bench.faults.checks`).
"""

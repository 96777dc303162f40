"""How passwords are kept."""

from __future__ import annotations

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2idHasher(Argon2PasswordHasher):
    """Argon2id with the second set of parameters of OWASP's Password Storage Cheat Sheet: 19 MiB, two passes.

    30 ms on one core where Django's PBKDF2 takes 700 ms, during which a request holds a connection to the database:
    with 200 people who signed in within 40 s, others got none.  Django's own 100 MiB would be too many for a server of
    350 MB with several sign-ins at once.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

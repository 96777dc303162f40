"""What needs Django before people come: `python -m asapweb.launcher.prepare migrate static knowledge link ADDRESS`.

Runs as a child of the launcher, which itself stays small.  Prints one JSON object; details go to stderr, a log.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout


def main(steps: list[str]) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    answer: dict[str, str] = {}
    with redirect_stdout(sys.stderr):
        import django
        from django.conf import settings
        from django.core.management import CommandError, call_command, get_commands

        django.setup()
        if "migrate" in steps:
            try:
                call_command("migrate", interactive=False, verbosity=1)
            except CommandError as error:  # a sentence for whoever starts us
                print(error)
                return 1
        if "static" in steps:
            call_command("collectstatic", interactive=False, verbosity=0)
        if "samples" in steps and "load_samples" in get_commands():
            call_command("load_samples")
        if "knowledge" in steps:
            call_command("load_knowledge")
            call_command("load_history")
        if "link" in steps:
            printed = io.StringIO()
            address = settings.PUBLIC_ADDRESS or steps[steps.index("link") + 1]
            call_command("sign_in_link", address=address, stdout=printed)
            answer["link"] = printed.getvalue().strip()
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

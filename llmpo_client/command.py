"""The command ``llmpo`` of a machine with the client: the gate, and the server's commands where it is too."""

import importlib
import sys

from llmpo_client import gate


def main() -> None:
    """Run the command that was typed."""
    if sys.argv[1:2] == ["gate"]:
        gate.main(sys.argv[2:])
    try:
        # Both distributions bring a command of this name, and the one installed last stays.
        server = importlib.import_module("llmpo_site.command")
    except ModuleNotFoundError:
        sys.exit("This is the client, whose command is: llmpo gate. The distribution llm-po has the others.")
    server.main()

"""QEMU's monitor protocol (QMP) over a connected socket: one command at a time, its answer or its error.

Must never wait without a limit: an emulator that does not answer is an error.
"""

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

ANSWER_S_MAX = 30.0


class MonitorError(Exception):
    """QEMU refused a command, did not answer in time, or is gone."""


class Monitor:
    """May be used by several threads; a command waits for the one before it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(ANSWER_S_MAX)
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")
        self._lock = threading.Lock()
        self._greeted = False

    def command(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Execute one command and return what QEMU returns.  Raises MonitorError."""
        with self._lock:
            if not self._greeted:
                self._read()  # who QEMU is
                self._execute("qmp_capabilities", {})
                self._greeted = True
            return self._execute(name, arguments or {})

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def _execute(self, name: str, arguments: Mapping[str, Any]) -> Any:
        request = json.dumps({"execute": name, "arguments": dict(arguments)})
        try:
            self._connection.sendall(request.encode() + b"\n")
        except OSError as error:
            raise MonitorError(f"QEMU takes no command {name}: {error}") from error
        while True:
            answer = self._read()
            if "error" in answer:
                raise MonitorError(f"QEMU refused {name}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
            # else one of its events, which tell nothing about this command

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except OSError as error:
            raise MonitorError(f"QEMU does not answer: {error}") from error
        if not line:
            raise MonitorError("QEMU is gone")
        answer: dict[str, Any] = json.loads(line)
        return answer

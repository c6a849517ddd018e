"""A process that has imported TensorFlow and forks a child for each program that a test runs.

Importing TensorFlow takes two to five seconds of a core; forking a process that has imported it takes 0.05. The server
is started by `processes.py`, with the number of an inherited socket as its argument. Each message on the socket is a
request: how to start Python, with the child's stdin, stdout and stderr. The answer is the child's process id.

A child is forked twice. The server's own child ends at once, so that the program becomes a child of the process that
runs the tests, which can wait for it and gets its exit status from the system.

The program then runs as it would in a new interpreter: in `__main__`, with its own arguments, environment and folder.
Its end is that of the interpreter. Two things differ: TensorFlow is in `sys.modules` already, and a traceback of
KeyboardInterrupt begins with a frame of this file. No thread runs here: it would be missing in the children.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import warnings
from typing import Any

LARGEST_MESSAGE = 1 << 17


def serve(connection: socket.socket) -> dict[str, Any]:
    """Answers requests until the other side closes the socket. Returns in each child, with its request."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, LARGEST_MESSAGE, 3)
        if not message:
            os._exit(0)
        reader, writer = os.pipe()
        between = fork()
        if not between:
            own = os.getpid()
            child = fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            for descriptor in (reader, writer, connection.detach()):
                os.close(descriptor)
            while os.getppid() == own:
                time.sleep(0.001)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        os.close(writer)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        connection.send(os.read(reader, 20))
        os.close(reader)


def fork() -> int:
    """Forks, without Python's warning: no thread of this process but one is in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def become(request: dict[str, Any]) -> None:
    """Gives this process the environment, folder and signals of the program that it is to run."""
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    importlib.import_module("numpy").random.seed()


def run(arguments: list[str], python_path: list[str]) -> None:
    """Runs what the arguments of a Python interpreter name: `-c code`, `-m module` or the path of a script."""
    kind = arguments[0] if arguments[0] in ("-c", "-m") else "script"
    own = {"-c": "", "-m": os.getcwd(), "script": os.path.dirname(os.path.realpath(arguments[0]))}
    sys.path[:1] = [own[kind], *python_path]
    if kind == "-m":
        sys.argv[:] = ["-m", *arguments[2:]]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    sys.argv[:] = ["-c", *arguments[2:]] if kind == "-c" else arguments
    system = sys  # The names of this module are those of the program, and go.
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    if kind == "-c":
        del main["__file__"]
        code = compile(arguments[1], "<string>", "exec")
    else:
        main["__file__"] = arguments[0]
        with open(arguments[0], "rb") as file:
            code = compile(file.read(), arguments[0], "exec")
    main["__doc__"] = None
    main["__annotations__"] = {}
    try:
        exec(code, main)
    except Exception as error:
        # As the interpreter does, but without the frame of this function.
        error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        system.last_type, system.last_value, system.last_traceback = type(error), error, error.__traceback__
        system.excepthook(type(error), error, error.__traceback__)
        system.exit(1)


if __name__ == "__main__":
    # Ctrl-C in a terminal is for the tests. They close the socket, and the server ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module("tensorflow")
    # The garbage collection at a child's end would copy all that the import has made, which takes a second.
    gc.collect()
    gc.freeze()
    connection.send(b"ready")
    request = serve(connection)
    become(request)
    run(request["arguments"], request["python_path"])

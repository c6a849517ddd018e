"""Runs programs, each in its own process that is forked from this one, which has imported what they need.

`worker.py MODULE`: each line of the input is a request as JSON, and each line of the output the answer:

    {"program", "folder", "last", "report", "output", "environment", "limit_secs"}
    {"ended": true or false, "error": why not, or "", "started": [step, least weight, greatest weight] or null}
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from importlib.metadata import distributions
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("programs")))
# Threads that a library starts when it is imported would be missing in the children.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from job import Job

DISTRIBUTIONS = {"tensorflow", "tensorflow-cpu", "keras", "jax", "orbax-checkpoint", "tensorstore", "torch", "fsspec"}
DISTRIBUTIONS |= {"pytorch-ignite", "lightning", "fastsup", "numpy", "h5py"}
PR_SET_PDEATHSIG = 1


def versions():
    """The versions of Python and of the packages here that matter."""
    found = {dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata["Name"] in DISTRIBUTIONS}
    return {"python": platform.python_version(), **found}


def run(program, request):
    """Runs a program in this process. Returns the exit code. The last line of the output is the error."""
    try:
        program(Job(request["folder"], request["last"], os.environ.get("FAULTS_LOG"), request["report"]))
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return 1
    return 0


def end(code):
    """Ends this process as an interpreter ends, but for freeing its memory: that of a fork would have to be copied."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_of(child, limit_secs):
    """Waits for a process, and kills it if it doesn't end in time. Returns its exit code, or None."""
    until = time.monotonic() + limit_secs
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def answer_to(request, code):
    """What is said of a program that has ended."""
    lines = Path(request["output"]).read_text(errors="replace").strip().splitlines()
    error = ""
    if code is None:
        error = f"no end after {request['limit_secs']} seconds"
    elif code < 0:
        error = f"ended by {signal.Signals(-code).name}"
    elif code:
        error = lines[-1] if lines else f"exit code {code}"
    report = Path(request["report"])
    text = report.read_text() if report.exists() else ""
    return {"ended": code == 0, "error": error, "started": json.loads(text) if text else None}


def main():
    """Answers requests, each from a child."""
    programs = importlib.import_module(sys.argv[1]).PROGRAMS
    print(json.dumps(versions()), flush=True)
    gc.freeze()
    parent = os.getpid()
    for line in sys.stdin:
        request = json.loads(line)
        for name in (request["report"], request["output"]):
            Path(name).unlink(missing_ok=True)
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ.update(request["environment"])
            end(run(programs[request["program"]], request))
        print(json.dumps(answer_to(request, end_of(child, request["limit_secs"]))), flush=True)


if __name__ == "__main__":
    main()

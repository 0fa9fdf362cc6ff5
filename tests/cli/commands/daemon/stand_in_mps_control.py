#!/usr/bin/env python3
"""A stand-in for NVIDIA's nvidia-cuda-mps-control: keeps a state file in the pipe directory, and starts nothing.

STAND_IN_MPS_FAILS: what it complains about instead of starting.  STAND_IN_MPS_CLIENTS: process numbers that use it.
"""

import os
import sys
from pathlib import Path


def main() -> int:
    state = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "control"
    assert Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
    if sys.argv[1:] == ["-d"]:
        if complaint := os.environ.get("STAND_IN_MPS_FAILS"):
            print(complaint, file=sys.stderr)
            return 1
        state.touch()
        return 0
    assert sys.argv[1:] == []
    if not state.exists():
        print("Cannot find MPS control daemon process", file=sys.stderr)
        return 1
    clients = os.environ.get("STAND_IN_MPS_CLIENTS", "")
    match sys.stdin.readline().split():
        case ["get_server_list"]:
            print("4242" if clients else "")
        case ["get_client_list", "4242"]:
            print("\n".join(clients.split(",")))
        case ["quit"]:
            state.unlink()
        case other:
            print(f"unknown command {other}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`vllm ...` in which the engine process is forked from the server process, not started anew: it then does not import everything
(torch, transformers, vllm) a second time, which takes as long as all the rest of the start.
"""

import multiprocessing
import sys

original = multiprocessing.get_context


def forking(method=None):
    return original("fork" if method == "spawn" else method)


multiprocessing.get_context = forking

from vllm.entrypoints.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.argv[0] = "vllm"
    sys.exit(main())

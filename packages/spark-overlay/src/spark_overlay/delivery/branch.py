"""The branch that is laid over vLLM's own file where a plugin cannot be used: text in, text out.

Owns its words and its place, behind the whole of the stock file, so that nothing of vLLM's is touched.  Where
VLLM_DSPARK_REMOTE is set, it runs what the plugin runs: settings, version, guard, and `init_speculator` replaced by
the one that builds the remote speculator for method dspark and refuses any other.  Standard library only; must never
be laid over a file where something could undo it.
"""

import ast

FUNCTION = "init_speculator"
"""The function of vLLM's that the plugin replaces; the branch must come after it."""
SWITCH = b"VLLM_DSPARK_REMOTE"
"""Stock vLLM never says this name."""
BRANCH = b"""

if __import__("os").environ.get("VLLM_DSPARK_REMOTE"):
    # spark-overlay: all above is vLLM's own; unset or empty, this branch is not taken and nothing else is here.
    from spark_overlay.vllm_seam.plugin import register

    register()
"""


class BranchError(ValueError):
    """The branch has no place in a file; the text says why."""


def lay_over(base: bytes) -> bytes:
    """The stock file and the branch.  Raises BranchError where its place is not exactly one."""
    if SWITCH in base:
        raise BranchError(f"it reads {SWITCH.decode()} itself already")
    try:
        body = ast.parse(base).body
    except (SyntaxError, ValueError) as error:
        raise BranchError(f"it is not Python: {error.args[0]}") from None
    places = [
        index
        for index, node in enumerate(body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == FUNCTION
    ]
    if len(places) != 1:
        raise BranchError(f"it defines {FUNCTION} {len(places)} times, not once")
    if places != [len(body) - 1]:
        raise BranchError(f"{FUNCTION} is not the last that it defines")
    if not base.endswith(b"\n"):
        raise BranchError("its last line has no end")
    return base + BRANCH


def stock_of(data: bytes) -> bytes | None:
    """What lies under the branch, None where data is not a file with exactly that laid over."""
    if not data.endswith(BRANCH):
        return None
    base = data.removesuffix(BRANCH)
    return None if SWITCH in base else base

"""Are rows from the remote table the very bytes of the local one, and what happens where they do not come?"""

from qualification.checks.model import Arm, Check, Subcase

CHECK = Check(
    name="table_rows_exact_and_fallback",
    asks="Are remote table rows exact, and does the engine fall back without a wrong row?",
    arm_variable="where table rows come from: the local table (OFF) or the remote one (ON)",
    off=Arm("table_local", "none"),
    on=Arm("table_remote", "none", settings={"ENGRAM_REMOTE": "1"}),
    subcases=(
        Subcase("rows_exact", "Is each row equal to the local table's, byte for byte?"),
        Subcase("fallback_exact", "Are rows equal where the remote table did not answer?"),
        Subcase("manifest_bound", "Is a table of another manifest refused?"),
    ),
    missing=("It lacks records of table rows, and arms that have a table."),
)

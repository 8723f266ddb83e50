"""Does each fault of the wire cost what its budget says, on the transport that is to be promoted?"""

from qualification.checks._arms import QUICK_RETRY, REMOTE
from qualification.checks.model import Arm, Check, Subcase

CHECK = Check(
    name="transport_faults_and_budgets",
    asks="Does each fault of the wire end within its budget, on the transport in question?",
    arm_variable="whether faults of the wire are injected (ON) or not (OFF)",
    off=REMOTE,
    on=Arm("remote_wire_faults", "remote", settings={**QUICK_RETRY, "WIRE_FAULTS": "1"}),
    subcases=(
        Subcase("connection_lost", "Is a lost connection noticed and remade within its budget?"),
        Subcase("peer_frozen", "Is a peer that stops answering left within its budget?"),
        Subcase("bytes_wrong", "Are bytes that are no message refused, and the connection ended?"),
        Subcase("rounds_within_deadline", "Does no round outlast its deadline?"),
    ),
    missing=(
        "It lacks faults below the transport's interface: the fault seam sits above it, "
        "and no record tells a fault's time from a round's."
    ),
)

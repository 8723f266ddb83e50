"""What a small drafter states in HELLO: a row of 8 elements, a block of 3 drafts, two slots."""

from ofl.contract.dspark_v1 import RowDtype, RowForm, Shape

SMALL_SHAPE = Shape(
    identity=bytes(range(32)),
    markov_identity=bytes(range(1, 33)),
    target_binding=bytes(range(2, 34)),
    vocabulary=1000,
    row_elements=8,
    window=4,
    max_positions=100,
    max_frame_bytes=1 << 16,
    block_length=3,
    max_slots=2,
    tap_count=1,
    row_form=RowForm.RAW,
    row_dtype=RowDtype.BFLOAT16,
)

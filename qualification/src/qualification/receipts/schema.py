"""JSON Schemas (2020-12) of everything that `qualify` reads and writes, generated from the models.

`python -m qualification.receipts.schema` writes the committed ones anew.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from qualification.policy import Policy
from qualification.receipts.envelope import EnvelopeRecord
from qualification.receipts.run_record import CompleteRecord, RunRecord
from qualification.receipts.statement import Statement
from qualification.subjects import SubjectsFile

FOLDER = Path(__file__).parent / "schemas"
MODELS: dict[str, type[BaseModel]] = {
    "receipt": Statement,
    "envelope": EnvelopeRecord,
    "run": RunRecord,
    "complete": CompleteRecord,
    "subjects": SubjectsFile,
    "policy": Policy,
}


class _Generate(GenerateJsonSchema):
    """Names the dialect, and leaves out the titles that only repeat a field's name."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        """As pydantic does, and the dialect."""
        return {"$schema": self.schema_dialect, **super().generate(schema, mode)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False


def schema(name: str) -> dict[str, Any]:
    """The schema of `MODELS[name]`."""
    made = MODELS[name].model_json_schema(by_alias=True, schema_generator=_Generate)
    return {"$id": f"urn:spark-offload:qualification:schema:{name}:v1", **made}


def text(name: str) -> str:
    """The content of the committed file."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every committed file."""
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        (FOLDER / f"{name}.schema.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()

"""An OpenAPI description, arranged for a page."""

import json
import re
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
# A docstring is wrapped for its reader in the source.
_WRAP = re.compile(r"(?<!\n)\n(?!\n)")


def sections(schema: Mapping[str, Any]) -> list[Row]:
    """The operations by tag, each with its parameters, its body and its answers in plain rows."""
    by_tag: dict[str, list[Row]] = {}
    schemes = schema["components"]["securitySchemes"]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            row = {
                "method": method.upper(),
                "path": path,
                "id": operation["operationId"],
                "text": _WRAP.sub(" ", operation.get("description", "")),
                "needs": [schemes[name]["description"] for each in operation["security"] for name in each],
                "parameters": operation.get("parameters", []),
                "body": _body(operation),
                "answers": [
                    _answer(code, answer) for code, answer in sorted(operation["responses"].items(), key=str)
                ],
            }
            by_tag.setdefault(operation["tags"][0], []).append(row)
    models = [
        {"name": name, "json": json.dumps(model, indent=2, ensure_ascii=False)}
        for name, model in sorted(schema["components"]["schemas"].items())
    ]
    return [
        *({"title": tag, "operations": rows} for tag, rows in by_tag.items()),
        {"title": "Schemas", "models": models},
    ]


def _body(operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return next((_name(each["schema"]) for each in content.values()), "")


def _answer(code: str | int, answer: Mapping[str, Any]) -> Row:
    content: Mapping[str, Mapping[str, Any]] = answer.get("content") or {"": {}}
    [(kind, body), *_] = content.items()
    name = _name(body.get("schema", {})) if kind == "application/json" else kind
    return {"code": code, "name": name}


def _name(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if schema.get("type") == "array":
        return f"list of {_name(schema['items'])}"
    return str(schema.get("title") or schema.get("type") or "")

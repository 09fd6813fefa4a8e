"""The registry as a JSON Schema, for editors.

It comes from the tables that the reader uses.  A schema sees one value at a time and no spelling,
so these rules of the reader are not in it:

- between values: a Scene names declared models, no two of them on one port; `sacrifice` names
  models of the Scene; a gateway listens on no model's port and not where another gateway listens
  or relays to, its own upstream included;
- a network has no bits beyond its prefix; two headers do not differ by capitals alone;
- a command in one line can be split by shell rules, and its parts have known placeholders;
- numbers are written in decimals, without exponent, sign or leading zero where they have a unit or
  are a port; a number in a probe's body is finite;
- no key is doubled, nothing is nested more than 64 deep, the file has at most 1 MiB.
"""

from __future__ import annotations

from lumbridge_compute.store.registry_parts import JSON_SCHEMA
from lumbridge_compute.store.registry_shapes import Schema
from lumbridge_compute.store.registry_tables import REGISTRY


def schema() -> Schema:
    """A schema of compute.yaml as a whole, by JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Registry of Lumbridge Compute",
        **REGISTRY.schema(),
        "$defs": {"json": JSON_SCHEMA},
    }

"""Who asks. The API has one token, and whoever holds it is a person of this mesh; records say so."""

from __future__ import annotations

BY = "a person"

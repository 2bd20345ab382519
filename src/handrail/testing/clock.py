from __future__ import annotations

START = 1.7e9

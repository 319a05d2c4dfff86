"""Firm's trained classifier of culprits. Made by `python -m studies firm-training`; edit studies/firm.

For: the numbers. Not for: what they mean (firm_culprits.py).
"""

from __future__ import annotations

from control.allocator.firm_culprits import Separator

SEPARATOR = Separator(30.3264, 20.3761, -47.7159)

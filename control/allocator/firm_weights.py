"""Firm's trained classifier of culprits. Made by `python -m studies firm-training`; edit studies/firm.

For: the numbers. Not for: what they mean (firm_culprits.py).
"""

from __future__ import annotations

from control.allocator.firm_culprits import Separator

SEPARATOR = Separator(29.0986, 20.489, -47.4954)

"""Firm's trained numbers. `python -m studies firm-training` writes this file.

For: the classifier of culprits and the actor's layers. Not for: what they mean (firm_culprits.py,
firm_agent.py).
"""

from __future__ import annotations

from control.allocator.firm_agent import Layers
from control.allocator.firm_culprits import Separator

SEPARATOR = Separator(21.7868, 10.1137, -25.8449)
ACTOR: Layers = (([[0.0] * 6] * 3, [0.0] * 3),)

"""What a catalogue's row says of a machine, in the recommenders' vocabulary. Not for: its price."""

from __future__ import annotations

from dataclasses import fields

from control.recommender.model import InstanceType
from traces.catalogue.catalogue import Listing


def instance_type(listing: Listing) -> InstanceType:
    """The type; a listing's region, market, price and date are no property of it."""
    return InstanceType(**{each.name: getattr(listing, each.name) for each in fields(InstanceType)})

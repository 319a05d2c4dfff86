"""A catalogue's row as an instance type. Not for: its price."""

from __future__ import annotations

from dataclasses import fields

from control.jobs import InstanceType
from traces.catalogue.catalogue import Listing


def instance_type(listing: Listing) -> InstanceType:
    """Return the type of a listing, without its region, market, price and date."""
    return InstanceType(**{column.name: getattr(listing, column.name) for column in fields(InstanceType)})

"""The fabric twin: edge links, detection, routing, queue pairs, collectives, training jobs and fleets."""

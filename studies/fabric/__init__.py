"""Public measurements beside the fabric's twin, and the training curve that ships."""

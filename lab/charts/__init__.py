"""Pictures of runs, drawn alike by the explorer and the report: palette, series to draw, Altair charts."""

"""Instance types and prices, each with its source and date."""

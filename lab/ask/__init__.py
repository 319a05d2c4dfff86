"""What a user asks: scenario files, policies as text, and one line for what is wrong with either."""

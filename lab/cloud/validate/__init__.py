"""The twin of markets beside a real training job."""

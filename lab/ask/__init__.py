"""Questions of users: scenario files, policies as text, and one-line errors for both."""

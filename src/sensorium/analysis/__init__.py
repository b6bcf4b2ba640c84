"""What happened inside: traces, figures, videos."""

"""The page where one shuffles the senses of an agent while it acts."""

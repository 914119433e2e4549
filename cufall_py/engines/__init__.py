"""What inference servers call things, one table an engine; their pages found, scraped and made into rates."""

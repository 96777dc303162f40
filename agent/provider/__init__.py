"""Model providers: any OpenAI-compatible endpoint, and the replay of a recorded one."""

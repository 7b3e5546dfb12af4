"""The online half: reconstruction, local moments and resumable chains over HTTP."""

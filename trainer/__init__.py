"""The offline half: from data to a verified model artefact."""

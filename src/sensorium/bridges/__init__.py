"""The only folder that imports Gymnasium and the simulators behind it."""

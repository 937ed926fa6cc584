"""What a run will take, before it is started: a probe of the real recipe, and the model of machine/predict.py."""

"""Normalises calls recorded by Dynamo and ATen to overloads with bound arguments."""

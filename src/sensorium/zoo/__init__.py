"""Trained agents: the shipped ones, those of runs and files, and the authors'."""

from sensorium.zoo.agent import Agent as Agent
from sensorium.zoo.agent import load as load
from sensorium.zoo.agent import names as names
from sensorium.zoo.agent import read_card as read_card
from sensorium.zoo.agent import zoo_directory as zoo_directory
from sensorium.zoo.conversion import convert as convert
from sensorium.zoo.published import published_directory as published_directory
from sensorium.zoo.published import read_published as read_published
from sensorium.zoo.training import find_expert as find_expert
from sensorium.zoo.training import resume as resume
from sensorium.zoo.training import train as train

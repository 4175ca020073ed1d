"""The project's test bed: a real control plane or a real one-node cluster on one machine.

Standard library only, because it runs before anything is installed:
``python3 -m testbed --help`` from the top of the checkout. ``testbed/README.md`` says how.
"""

"""What every room stands on: files, errors, random numbers, devices, signals, progress, preprocessing, the network.

What may enter: small things that know nothing of images, models or methods, and import no other room.
"""

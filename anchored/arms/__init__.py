"""What is compared: an arm is a method with any overrides of recipe, augmentation, weights and protocol.

What may enter: settings, each declared once with its rule and its help. Nothing here loads, trains or predicts.
"""

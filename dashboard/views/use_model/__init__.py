"""The page Use a model: the ordinary job of a pretrained model beside its attention."""

"""All mechanisms: any choice of any axis on the same sentence, with all that its entry says."""

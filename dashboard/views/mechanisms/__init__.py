"""All mechanisms: any choice of any axis on the same sentence, with its whole entry."""

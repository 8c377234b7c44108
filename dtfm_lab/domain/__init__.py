"""The nouns: frozen values that check themselves once, when made."""

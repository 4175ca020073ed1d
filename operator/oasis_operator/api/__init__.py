"""The API of ``oasiskv.io/v1alpha1``: typed models, and the CRD that is generated from them."""

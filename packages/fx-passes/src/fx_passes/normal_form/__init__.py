"""One spelling of every call: what Dynamo and ATen record, as overloads with bound arguments."""

//! The provider of an HTTP endpoint, and the list of the models that an endpoint offers.

pub mod endpoint_provider;
pub mod model_list;

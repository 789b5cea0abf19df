mod data;
mod forks;
mod founding;
mod hostile;
mod leaves;
mod levels;
mod liar;
mod lies;
#[cfg(feature = "mutants")]
mod mutants;
mod net;
mod replaced;
mod review;
mod situations;
mod suspicion;
mod terms;
mod violations;
mod weights;

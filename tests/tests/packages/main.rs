//! What users get: packages, examples, pages, and what others read of our ids.

mod examples;
mod others;
mod pages;
mod publish;
mod tidy;

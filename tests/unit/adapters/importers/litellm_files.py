"""Configurations of a LiteLLM proxy as teams have them."""

STARTUP = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://acme-eu.openai.azure.com/
      api_key: os.environ/AZURE_EU_KEY
      api_version: "2024-10-21"
      rpm: 600
      tpm: 100000
      input_cost_per_token: 0.0000025
      output_cost_per_token: 0.00001
  - model_name: gpt-4o
    litellm_params:
      model: gpt-4o
      api_key: sk-literal-0123456789
      rpm: 400
      tpm: 50000
      timeout: 30
      stream_timeout: 5
      max_parallel_requests: 20
    model_info: {mode: chat, input_cost_per_token: 2.5e-06, output_cost_per_token: 1e-05}
  - model_name: claude
    litellm_params: {model: bedrock/anthropic.claude, aws_region_name: eu-west-1}
  - model_name: groq/llama-70b
    litellm_params: {model: groq/llama-3.3-70b-versatile, temperature: 0.2}
    model_info: {input_cost_per_token: 0.0000006, output_cost_per_token: 0.0000008}
  - model_name: "openai/*"
    litellm_params: {model: "openai/*", api_key: sk-literal-0123456789}
litellm_settings:
  num_retries: 2
  request_timeout: 120
  drop_params: true
  fallbacks: [{gpt-4o: [claude, groq/llama-70b]}]
  context_window_fallbacks: [{gpt-4o: [claude]}]
  success_callback: [langfuse]
  max_budget: 100
  budget_duration: 30d
router_settings:
  routing_strategy: least-busy
  redis_password: hidden-redis-password
  model_group_alias: {gpt-4: gpt-4o, old: gone}
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
  database_url: postgresql://user:hidden-db-password@host/db
  global_max_parallel_requests: 500
  something_new: true
environment_variables: {AZURE_EU_KEY: hidden-azure-key, LANGFUSE_SECRET_KEY: hidden-langfuse}
"""

SELF_HOSTED = """
defaults: &defaults
  timeout: 60
  rpm: os.environ/RPM
model_list:
  - model_name: qwen
    litellm_params:
      <<: *defaults
      model: hosted_vllm/Qwen/Qwen2.5-7B-Instruct
      api_base: http://10.0.0.5:8000/v1
      order: 2
  - model_name: qwen
    litellm_params:
      model: openai/Qwen/Qwen2.5-7B-Instruct
      api_base: os.environ/SECOND
      api_key: none
      order: 1
  - model_name: local
    litellm_params: {model: ollama_chat/qwen2.5, api_base: "http://127.0.0.1:11434"}
  - model_name: embed
    litellm_params: {model: openai_like/bge-m3, api_base: "https://user:hidden@tei.internal/v1"}
    model_info: {mode: embedding}
  - model_name: paint
    litellm_params: {model: openai/dall-e-3}
    model_info: {mode: image_generation}
litellm_settings:
  default_fallbacks: [local]
  cache: true
  cache_params: {type: redis-semantic, host: redis, password: hidden-redis, ttl: 3600}
router_settings: {timeout: 90, num_retries: 1}
general_settings: {master_key: sk-1234}
"""

BARE = """
model_list:
- model_name: gpt-4o-mini
  litellm_params: {model: gpt-4o-mini, api_base: https://api.openai.com/v1/}
general_settings: {master_key: sk-a-master-key-that-is-long-enough-0123}
"""

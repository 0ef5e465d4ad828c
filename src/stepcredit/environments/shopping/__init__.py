"""Shopping: WebShop's catalogue, search engine, pages, goals and reward in one process."""
